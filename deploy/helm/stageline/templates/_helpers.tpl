{{/* The plan or fleet, parsed: how many stages each replica has. Replicas are numbered through all pools of a fleet. */}}
{{- define "stageline.plan" -}}
{{- $plan := fromJson .Values.plan -}}
{{- $pools := list (dict "plan" $plan) -}}
{{- if hasKey $plan "pools" -}}
{{- $pools = $plan.pools -}}
{{- end -}}
{{- $replicas := list -}}
{{- range $pool := $pools -}}
{{- if or (hasKey $plan "Error") (not (hasKey $pool.plan "stages")) -}}
{{- fail "plan: is no plan file; make one with stageline plan -o plan.json and give --set-file plan=plan.json" -}}
{{- end -}}
{{- range until (int ($pool.plan.replicas | default 1)) -}}
{{- $replicas = append $replicas (len $pool.plan.stages) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "replicas" $replicas) -}}
{{- end -}}

{{- define "stageline.labels" -}}
app.kubernetes.io/name: stageline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "stageline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "stageline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where pods may run. */}}
{{- define "stageline.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How a stage is probed: Kubernetes' gRPC probes speak no TLS. A stage serves from the moment it listens. */}}
{{- define "stageline.stageProbe" -}}
{{ if .Values.settings.tls_cert }}tcpSocket{{ else }}grpc{{ end }}: { port: 50051 }
{{- end -}}

{{/* Whether every stage serves. With TLS the router's own check asks, which reads the same certificates. */}}
{{- define "stageline.routerProbe" -}}
{{- if .Values.settings.tls_cert -}}
exec: { command: [python, -m, router.check] }, timeoutSeconds: 5
{{- else -}}
grpc: { port: 50051 }
{{- end -}}
{{- end -}}
