{{/* The plan, parsed; it says how many stages and replicas there are. */}}
{{- define "stageline.plan" -}}
{{- $plan := fromJson .Values.plan -}}
{{- if or (hasKey $plan "Error") (not (hasKey $plan "stages")) -}}
{{- fail "plan: is no plan file; make one with stageline plan -o plan.json and give --set-file plan=plan.json" -}}
{{- end -}}
{{- toJson (dict "stages" (len $plan.stages) "replicas" (int ($plan.replicas | default 1))) -}}
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
